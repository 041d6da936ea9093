"""Plans batches: starting offsets, limits, splitting and packing of ranges, data loss, the offset document."""
