package redistest

// Ports makes Start try these ports, in this order.
func Ports(ports ...int) Option {
	return func(c *config) {
		c.pick = func() (int, error) {
			port := ports[0]
			ports = append(ports[1:], port)
			return port, nil
		}
	}
}

// FreePort is what Start uses otherwise.
var FreePort = freePort

// FindReply finds the reply that a connection loses.
var FindReply = findReply
