"""Pure: starting offsets, limits, splitting and packing of ranges, the data-loss policy, the batch's document."""
