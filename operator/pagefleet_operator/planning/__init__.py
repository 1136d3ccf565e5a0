"""From a spec, a shape and the nodes to a ServingPlan, and its forms for readers."""
