package redistest

import (
	"bytes"
	"strconv"
)

// parseRequest reads one request, which clients send as an array of bulk strings. It returns its words and length, or
// a length of 0 if b doesn't hold all of it.
func parseRequest(b []byte) (words []string, n int) {
	count, n, ok := header(b, '*')
	if !ok {
		return nil, 0
	}
	for range count {
		size, h, ok := header(b[n:], '$')
		if !ok || len(b) < n+h+size+2 {
			return nil, 0
		}
		n += h
		words = append(words, string(b[n:n+min(size, maxArg)]))
		n += size + 2
	}
	if len(words) == 0 {
		return nil, 0
	}
	return words, n
}

// header reads a line of a type and a number, and the line's length.
func header(b []byte, kind byte) (number, n int, ok bool) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 || b[0] != kind {
		return 0, 0, false
	}
	number, err := strconv.Atoi(string(b[1:end]))
	return number, end + 2, err == nil
}

// findReply returns where in b the n-th reply begins and ends, 1 being the first. Messages that the server pushes are
// not counted.
func findReply(b []byte, n int) (start, end int, ok bool) {
	for n > 0 {
		size, ok := replyLen(b[end:])
		if !ok {
			return 0, 0, false
		}
		start = end
		end += size
		if b[start] != '>' {
			n--
		}
	}
	return start, end, true
}

// replyLen is the length of the reply that b begins with; ok is false if b doesn't hold all of it.
func replyLen(b []byte) (n int, ok bool) {
	line := bytes.Index(b, []byte("\r\n"))
	if line < 1 {
		return 0, false
	}
	n = line + 2
	count := 0 // of the replies that follow as parts of this one
	switch b[0] {
	case '$', '!', '=': // a text of that many bytes, or none
		if size, _ := strconv.Atoi(string(b[1:line])); size >= 0 {
			n += size + 2
		}
		return n, n <= len(b)
	case '*', '~', '>':
		count, _ = strconv.Atoi(string(b[1:line]))
	case '%':
		count, _ = strconv.Atoi(string(b[1:line]))
		count *= 2
	case '|': // attributes, and the reply that they belong to
		count, _ = strconv.Atoi(string(b[1:line]))
		count = 2*count + 1
	}
	for range count {
		part, ok := replyLen(b[n:])
		if !ok {
			return 0, false
		}
		n += part
	}
	return n, true
}
