"""The paper's evaluation, from real runs. Computing needs torch and NumPy alone; drawing comes after."""
