"""Pure: the history behind the live page. Readings go in, series, timelines and marks come out, without a clock."""
