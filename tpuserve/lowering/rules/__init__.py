"""How the lowering treats each op: the table of ops, and the rules (functions) that replace ops."""
