"""Off-policy algorithms: SAC, TD3 and their kin, each in a file that reads like its paper."""
