from .conformance import BackendConformance as BackendConformance
from .fake import FakeBackend as FakeBackend
from .fake_state import Reads as Reads
from .fake_state import Script as Script
from .faults import Fault as Fault
from .layouts import make_layout as make_layout
from .operators import written_tensors as written_tensors
