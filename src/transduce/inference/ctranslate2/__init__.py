"""CTranslate2 as an engine: specification, export, translation (extra `fast`)."""
