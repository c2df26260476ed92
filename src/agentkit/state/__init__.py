"""What an agent knows, how it is shortened, where it is kept, and how a run is taken up again."""
