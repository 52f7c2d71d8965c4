"""What a cluster says, read: cards, nodes, pods. Plain data in, values out."""
