from tests import typecheck as typecheck
