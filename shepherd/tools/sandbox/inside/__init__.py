"""Programs that run alone at the border of a box, without the rest of Shepherd."""
