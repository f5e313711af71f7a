package replay

// Arrivals lets tests feed a fleet alone what a replay feeds it.
var Arrivals = arrivals
