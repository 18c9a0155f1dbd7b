//! Legacy `.rpd` files of rocmProfileData.
