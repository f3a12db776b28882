// Package storetest is the contract of package store as tests: what an operation must do, and what must hold after any.
//
// A [Case] is written once and runs in three worlds, which its [Env] hides from it. [Embedded] is the in-process server inside a
// testing/synctest bubble, where an hour passes in no time. [Real] is a redis-server, where nobody can wait for an hour:
// there [Env.Later] moves what the server has noted into the past instead. So no case sleeps to make time pass. [Cluster] is the
// same on several of them, where a parent's instance and its children's are at different nodes.
//
// When a case is over, [Env.Check] looks behind the store: each job in exactly one state, each mapping where there is a lease,
// no key that the layout does not name.
//
// The reference model, in model.go, tests the same promises by random sequences of operations.
package storetest
