// Package redistest gives tests a real redis-server of their own, and a way to make its commands fail.
//
// [Start] runs a server for one test, [Shared] one for all tests of a binary, to be used under a random [Prefix]. Both
// listen on a free loopback port, write to a temporary directory and end with their owner, also when that is killed.
// No function touches a server that this package has not started. Where redis-server is not installed the test is
// skipped; with STINT_REQUIRE_REDIS=1 in the environment it fails instead.
//
// [Fault] makes single commands fail or lose their reply, and takes a whole server away. It is installed on any go-redis
// client, of the embedded server as well. [Intercept] does whatever else a test wants with single commands.
//
// A server is a real process in real time: not for synctest bubbles. The package starts no goroutines.
package redistest
