"""What each request of a run costs, including requests that a stop has cut."""
