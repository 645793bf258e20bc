"""The data plane: answers inference, status and metadata requests of all protocols."""

from server.dataplane.data_plane import DataPlane as DataPlane
from server.dataplane.model_spec import ModelSpec as ModelSpec
from server.dataplane.results import Classification as Classification
from server.dataplane.results import Metadata as Metadata
from server.dataplane.results import ModelStatus as ModelStatus
from server.dataplane.results import Prediction as Prediction
from server.dataplane.results import Regression as Regression
from server.dataplane.results import SampleRequest as SampleRequest
from server.dataplane.results import Statistics as Statistics
