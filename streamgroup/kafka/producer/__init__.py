"""The producer as a pure machine: which records go to which partition, in which batches and requests, and when."""
