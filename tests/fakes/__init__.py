"""Fakes of the interfaces of the product. Contract tests run over each fake and the real one."""
