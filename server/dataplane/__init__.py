"""What a client can ask, without a word of HTTP or gRPC."""

from server.dataplane.answers import Classification as Classification
from server.dataplane.answers import Metadata as Metadata
from server.dataplane.answers import ModelStatus as ModelStatus
from server.dataplane.answers import Prediction as Prediction
from server.dataplane.answers import Regression as Regression
from server.dataplane.plane import DataPlane as DataPlane
from server.dataplane.targets import Target as Target
