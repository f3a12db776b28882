package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// holdChild is a process that takes jobs and never ends one. It says when it is ready to, and the time whenever it starts one.
func holdChild(args []string) error {
	system, addr, name := args[0], args[1], args[2]
	workers, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	open := stintWith(func(s *stint) { s.keep = true })
	if system == them {
		open = peerWith(nil)
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	sd, err := open(site{client, client, name})
	if err != nil {
		return err
	}
	var one sync.Mutex // of the lines
	_, err = sd.work(workers, func([]byte) {
		now := time.Now()
		one.Lock()
		fmt.Println(now.UnixNano())
		one.Unlock()
		select {}
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

// hold starts such a process and returns when it holds n jobs, which have to be there.
func hold(ctx context.Context, system, addr, name string, n int) (*child, error) {
	c, err := startHolder(ctx, system, addr, name, n)
	for i := 0; i < n && err == nil; i++ {
		if _, err = c.line(ctx); err != nil {
			c.kill()
		}
	}
	return c, err
}

func startHolder(ctx context.Context, system, addr, name string, workers int) (*child, error) {
	return startChild(ctx, "hold", system, addr, name, strconv.Itoa(workers))
}
