"""Robot models, built from tables; no files, no meshes."""
