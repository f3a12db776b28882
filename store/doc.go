// Package store keeps jobs in Redis and is everything that knows Redis: keys, records, scripts, the embedded server.
//
// A [Store] is for reading and administration: [Store.Get], [Store.List], [Store.Stats], [Store.Pause], [Store.Requeue] and so
// on. Jobs are produced with worker.Client and run by worker.Supervisor, which drive the store through
// [Store.Runtime].
//
// Every operation on an instance is one Lua script over the keys of that instance, which share a hash tag: it happens as a whole
// or not at all, costs one round trip, and works on a Cluster. All times are the server's, in milliseconds. Requests
// that change something happen once however often they are sent, see [Lane]. What holds a lease is told apart from what
// only believes it does by a token that never repeats, see [Lease].
//
// An error of the server is returned as an error: a nil error with nothing in it means that there is nothing.
package store
