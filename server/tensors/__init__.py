"""TensorProto messages: parsing them to arrays and serialising arrays as them."""
