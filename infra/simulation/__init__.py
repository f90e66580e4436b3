"""A discrete-event model of a study on a cluster: how long, how much, and what holds it up; no Ray."""
