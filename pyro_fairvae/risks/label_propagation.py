"""P_g as a Gaussian field: unstated labels from the stated labels of similar rows."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import cg
from torch import Tensor

from pyro_fairvae.base.errors import require

LANDMARKS = 10_000  # rows among which neighbours are searched, so that a graph costs O(rows)
RETURN = 0.01  # η, the chance that a walk on the graph ends at the classes' prevalence


def propagate_labels(features: Tensor, y_obs: Tensor, classes: int, neighbours: int = 10) -> Tensor:
    r"""P(y | the graph), (rows, classes): the harmonic function of Zhu, Ghahramani and Lafferty (2003).

    Rows are joined to their nearest neighbours with weights :math:`w_{ij} = \exp(-\|x_i - x_j\|^2/\sigma^2)`,
    σ² the median squared distance of neighbours that differ. Stated labels (``y_obs < classes``) are held
    fixed, and every other row is the weighted mean of its neighbours,

    .. math:: (D_u - (1-\eta) W_{uu}) f_u = (1-\eta) W_{ul} f_l + \eta D_u \pi,

    where with probability η a row takes the prevalence π of the stated labels (their "dongle" nodes), which
    also covers parts of the graph without a stated label. Neighbours are searched among at most
    ``LANDMARKS`` rows; the system is sparse and solved by conjugate gradients.
    """
    rows = len(features)
    require(neighbours >= 1, f"the graph needs at least 1 neighbour for each row, got {neighbours}.")
    known = (y_obs < classes).cpu().numpy()
    require(bool(known.any()), "a Gaussian field needs stated labels, but got none; use labeller 'head'.")
    stated = np.eye(classes + 1)[y_obs.cpu().numpy()][:, :classes]
    probabilities = stated.copy()
    if known.all():
        return torch.from_numpy(probabilities)
    graph = similarity_graph(features.detach().float().cpu().numpy(), min(neighbours, rows - 1))
    degree = np.asarray(graph.sum(1)).ravel()
    # A row that is infinitely far from all others gets the prevalence alone.
    degree = np.where(degree > 0, degree, 1.0)
    unknown = np.flatnonzero(~known)
    prevalence = stated[known].mean(0)
    to_unknown = graph[unknown]
    system = sparse.diags(degree[unknown]) - (1 - RETURN) * to_unknown[:, unknown]
    right = (1 - RETURN) * (to_unknown @ stated) + RETURN * np.outer(degree[unknown], prevalence)
    scale = sparse.diags(1 / degree[unknown])
    for c in range(classes):
        probabilities[unknown, c], failed = cg(system, right[:, c], rtol=1e-6, M=scale)
        if failed:
            raise ArithmeticError(f"the Gaussian field did not converge in {failed} steps.")
    probabilities = probabilities.clip(0, 1)
    return torch.from_numpy(probabilities / probabilities.sum(1, keepdims=True))


def similarity_graph(features: np.ndarray, neighbours: int) -> sparse.csr_matrix:
    """Symmetric weights between each row and its nearest landmarks, (rows, rows) and sparse."""
    from sklearn.neighbors import NearestNeighbors  # imported here since few fits need it

    rows = len(features)
    landmarks = np.random.default_rng(0).permutation(rows)[:LANDMARKS]
    search = NearestNeighbors(n_neighbors=min(neighbours + 1, len(landmarks)), algorithm="brute")
    distance, nearest = search.fit(features[landmarks]).kneighbors(features)
    start = np.repeat(np.arange(rows), nearest.shape[1])
    end, squared = landmarks[nearest].ravel(), np.square(distance.ravel(), dtype=np.float64)
    other = start != end  # a landmark is not its own neighbour
    start, end, squared = start[other], end[other], squared[other]
    apart = squared[squared > 0]
    width = np.median(apart) if apart.size else 1.0
    weight = np.exp(-squared / width)
    weight[weight < 1e-12] = 0.0  # so far away that it is no neighbour
    graph = sparse.csr_matrix((weight, (start, end)), shape=(rows, rows))
    return graph.maximum(graph.T)
