"""What bench/compare is made of; each module has one job."""
