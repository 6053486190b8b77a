"""The exchange as a model for ProVerif: `exchange.pv`, its broken rules, and how to run them."""
