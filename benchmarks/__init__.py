"""Speed against other libraries, each measurement in a process of its own."""
