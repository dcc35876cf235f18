"""How each verb's result reads: human and JSON apart. Views format; they compute nothing new."""
