package worker

// picker decides which of a pool's instances a free slot asks for a job. In a strict pool that is the first that may be
// asked; else it is each of them in proportion to its weight, evenly mixed: smooth weighted round robin. Only those that may be
// asked take part, so none saves up for later while it is empty, and among the others the proportions stay.
type picker struct {
	strict  bool
	weights []int
	credit  []int // what each is owed; bounded by the sum of the weights
}

// next returns the index of the one to ask, -1 if none may be asked.
func (k *picker) next(may func(i int) bool) int {
	best, total := -1, 0
	for i, w := range k.weights {
		if !may(i) {
			continue
		}
		if k.strict {
			return i
		}
		k.credit[i] += w
		total += w
		if best < 0 || k.credit[i] > k.credit[best] {
			best = i
		}
	}
	if best >= 0 {
		k.credit[best] -= total
	}
	return best
}

// add adds one of that weight, after the others.
func (k *picker) add(weight int) {
	k.weights = append(k.weights, weight)
	k.credit = append(k.credit, 0)
}
