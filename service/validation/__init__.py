"""Strict reading of JSON into dataclasses, and findings as problems."""

from service.validation.descriptions import install

install()
