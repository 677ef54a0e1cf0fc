"""What every frontend in a terminal uses: safe text, paint, keys, attachments."""
