package workertest

// ContextOf is Context with a store of the test's.
var ContextOf = contextOf
