"""What do many questions answer at once? Models, clusters, prices, recipes and layouts, crossed, as one table."""
