"""`make pipeline`: the flights of 2013 through a broker and three jobs of Spark."""
