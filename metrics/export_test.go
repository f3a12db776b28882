package metrics

// Remembered is how many instances that are gone are remembered.
const Remembered = remembered
