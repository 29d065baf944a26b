"""What `freshet run` does: the stack on this machine, the run, its pictures and its report."""
