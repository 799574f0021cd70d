"""One module per broker that can be compared; `registry` names them."""
