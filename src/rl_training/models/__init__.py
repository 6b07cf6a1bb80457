"""Networks, chosen by the observation and the action space."""
