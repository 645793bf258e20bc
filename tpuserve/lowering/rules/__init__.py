"""How the lowering treats each op: the table of ops and the functions that replace them."""
