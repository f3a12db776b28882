package main

import (
	"fmt"
	"net"
	"time"
)

// proxyChild stands before a server and makes each round trip longer, as a network does: every chunk is passed on when it has
// been there for the delay, however many others are on their way. It is a process of its own so that what it costs is not
// taken for what clients cost.
func proxyChild(args []string) error {
	delay, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return proxy(l, args[0], delay)
}

// proxy serves until the listener is closed.
func proxy(l net.Listener, to string, delay time.Duration) error {
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close()
			continue
		}
		go pass(client, server, delay) // requests late, replies at once: half each would be no other sum
		go pass(server, client, 0)
	}
}

// chunk is some bytes and when they may go on.
type chunk struct {
	bytes []byte
	due   time.Time
}

// pass passes bytes on until one of the sides closes.
func pass(from, to net.Conn, delay time.Duration) {
	chunks := make(chan chunk, 10_000) // far more than come within a delay
	go func() {
		defer to.Close()
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.bytes); err != nil {
				return // the reader ends with the connection
			}
		}
	}()
	defer close(chunks)
	defer from.Close()
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		if n > 0 {
			chunks <- chunk{b[:n], time.Now().Add(delay)}
		}
		if err != nil {
			return
		}
	}
}
