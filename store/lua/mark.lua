-- Writes something, whatever is there and however full Redis is, so that there is something for replicas to acknowledge.
-- KEYS: the instance's mark.
-- Returns: nothing of interest.

return redis.call('SET', KEYS[1], '', 'PX', '60000')
