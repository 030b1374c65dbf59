"""Fair classification when group membership is withheld, and who withholds it is to be learned.

The parts, in the order in which they build on each other:

- :mod:`pyro_fairvae.data`: tables, and how demographics go missing in them
- :mod:`pyro_fairvae.models`, :mod:`pyro_fairvae.guides`: the Pyro programs
- :mod:`pyro_fairvae.risks`, :mod:`pyro_fairvae.inference.objective`: what is minimised
- :mod:`pyro_fairvae.inference.training`: ``fit``, one SVI run for a whole frontier
- :mod:`pyro_fairvae.posterior.summaries`, :mod:`pyro_fairvae.evaluation.metrics`: what came out of it
"""

__version__ = "0.1.0"
