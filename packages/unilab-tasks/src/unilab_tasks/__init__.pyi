from .register import register as register
