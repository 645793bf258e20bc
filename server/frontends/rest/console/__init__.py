"""The console: a web page that shows operators the models, their load and their last errors."""
