"""The engines that run models: torch and compiled C++."""
