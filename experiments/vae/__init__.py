"""The paper's variational autoencoder on MNIST."""
