"""The mirror job: it copies topics from one Kafka cluster to another, of any versions, and verifies the copy."""
