"""The only sockets: connections and the cluster behind them."""
