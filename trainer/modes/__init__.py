"""The modes of an estimator: train, evaluate and predict."""
